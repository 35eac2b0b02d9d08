-- A number, a random uuid, a number: a key that arrives in no order.
-- options: format 'csv'
-- sum: number

CREATE TABLE uuids (
    number int,
    id uuid NOT NULL,
    amount int
);

-- indexes
ALTER TABLE uuids ADD PRIMARY KEY (id);
