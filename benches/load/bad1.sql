-- The rows of test, 1 % of them with a value that its type does not accept.
-- options: format 'csv', null '\N'
-- sum: id
-- bad rows

CREATE TABLE bad1 (
    id int,
    info text,
    crt_time timestamp
);

-- indexes
ALTER TABLE bad1 ADD PRIMARY KEY (id);
