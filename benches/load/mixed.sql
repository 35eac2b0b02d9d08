-- An order: 40 columns of some 30 types, with nulls, as COPY writes them: 648 bytes a row.
-- options: format 'csv'
-- sum: id
-- wide: reference

CREATE TABLE mixed (
    id bigint,
    customer uuid,
    status varchar(10),
    is_active bool,
    is_gift bool,
    channel smallint,
    quantity int,
    total bigint,
    price numeric(12,2),
    discount numeric(5,4),
    tax numeric(20,6),
    weight real,
    latitude double precision,
    longitude double precision,
    created_at timestamptz,
    updated_at timestamptz,
    shipped_on date,
    slot time,
    placed_at timestamp,
    took interval,
    name text,
    email text,
    title varchar(60),
    country char(2),
    zip varchar(10),
    phone varchar(20),
    note text,
    payload jsonb,
    attributes jsonb,
    source json,
    tags text[],
    sizes int[],
    prices numeric(10,2)[],
    valid int4range,
    ip inet,
    checksum bytea,
    trace uuid,
    flags bit(8),
    grade "char",
    reference text
);

-- indexes
ALTER TABLE mixed ADD PRIMARY KEY (id);
CREATE INDEX mixed_customer ON mixed (customer);
