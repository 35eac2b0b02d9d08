-- JSON documents with line ends in them, in CSV: 523 bytes and some 25 lines a row.
-- options: format 'csv'
-- sum: id
-- wide: kind

CREATE TABLE documents (
    id int NOT NULL,
    kind text,
    written_at timestamp,
    body jsonb
);

-- indexes
ALTER TABLE documents ADD PRIMARY KEY (id);
