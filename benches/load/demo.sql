-- A number, a short word, a number: 16 bytes a row.
-- options: format 'text'
-- sum: id

CREATE TABLE demo (
    id int,
    text varchar(15),
    number int
);

-- indexes
CREATE UNIQUE INDEX demo_id ON demo (id);
