-- The rows of test, 0.01 % of them with a value that its type does not accept.
-- options: format 'csv', null '\N'
-- sum: id
-- bad rows

CREATE TABLE bad001 (
    id int,
    info text,
    crt_time timestamp
);

-- indexes
ALTER TABLE bad001 ADD PRIMARY KEY (id);
