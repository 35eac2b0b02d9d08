-- A number, a text that is a key, a number. Texts compare by "C".
-- options: format 'csv'
-- sum: number
-- file: words

CREATE TABLE words_c (
    number int,
    word text COLLATE "C" NOT NULL,
    amount int
);

-- indexes
ALTER TABLE words_c ADD PRIMARY KEY (word);
