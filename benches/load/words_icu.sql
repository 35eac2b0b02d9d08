-- A number, a text that is a key, a number. Texts compare by "und-x-icu".
-- options: format 'csv'
-- sum: number
-- file: words

CREATE TABLE words_icu (
    number int,
    word text COLLATE "und-x-icu" NOT NULL,
    amount int
);

-- indexes
ALTER TABLE words_icu ADD PRIMARY KEY (word);
