-- The customer table of DBT-2: 21 columns, mostly text, 584 bytes a row.
-- options: format 'csv'
-- sum: c_id

CREATE TABLE customer (
    c_id int NOT NULL,
    c_d_id int NOT NULL,
    c_w_id int NOT NULL,
    c_first varchar(16) NOT NULL,
    c_middle char(2) NOT NULL,
    c_last varchar(16) NOT NULL,
    c_street_1 varchar(20) NOT NULL,
    c_street_2 varchar(20) NOT NULL,
    c_city varchar(20) NOT NULL,
    c_state char(2) NOT NULL,
    c_zip char(9) NOT NULL,
    c_phone char(16) NOT NULL,
    c_since timestamp NOT NULL,
    c_credit char(2) NOT NULL,
    c_credit_lim numeric(24,12) NOT NULL,
    c_discount real NOT NULL,
    c_balance numeric(24,12) NOT NULL,
    c_ytd_payment numeric(24,12) NOT NULL,
    c_payment_cnt int NOT NULL,
    c_delivery_cnt real NOT NULL,
    c_data varchar(500) NOT NULL
);

-- indexes
ALTER TABLE customer ADD PRIMARY KEY (c_id);
CREATE INDEX customer_payment_cnt ON customer (c_payment_cnt);
