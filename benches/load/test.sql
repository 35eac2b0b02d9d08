-- A number, an MD5 sum, a timestamp; every field quoted: 74 bytes a row.
-- options: format 'csv', null '\N'
-- sum: id
-- wide: info

CREATE TABLE test (
    id int,
    info text,
    crt_time timestamp
);

-- indexes
ALTER TABLE test ADD PRIMARY KEY (id);
