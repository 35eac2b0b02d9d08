-- 29 columns out of a ledger, mostly numbers, with nulls: 120 bytes a row.
-- options: format 'text', null ''
-- sum: id
-- wide: reference

CREATE TABLE extract (
    id int,
    branch int,
    account int,
    product int,
    day int,
    hour int,
    channel int,
    reversed int,
    quantity int,
    attempts int,
    region int,
    status int,
    reference text,
    settled bit(1),
    amount_gross numeric(20,2),
    amount_net numeric(20,2),
    amount_tax numeric(20,2),
    amount_fee numeric(20,2),
    amount_discount numeric(20,2),
    amount_open numeric(20,2),
    balance_before numeric(20,2),
    balance_after numeric(20,2),
    rate_exchange numeric(38,6),
    rate_interest numeric(38,6),
    rate_tax numeric(38,6),
    rate_fee numeric(38,6),
    rate_discount numeric(38,6),
    weight numeric(38,6),
    score numeric(38,6)
);

-- indexes
CREATE UNIQUE INDEX extract_id ON extract (id);
