-- The rows of test, 10 % of them with a value that its type does not accept.
-- options: format 'csv', null '\N'
-- sum: id
-- bad rows

CREATE TABLE bad10 (
    id int,
    info text,
    crt_time timestamp
);

-- indexes
ALTER TABLE bad10 ADD PRIMARY KEY (id);
