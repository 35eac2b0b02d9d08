-- The lines of orders, TPC-H's largest table: 16 columns, every field quoted: 159 bytes a row.
-- options: format 'csv'
-- sum: l_orderkey

CREATE TABLE lineitem_quoted (
    l_orderkey bigint NOT NULL,
    l_partkey bigint NOT NULL,
    l_suppkey bigint NOT NULL,
    l_linenumber int NOT NULL,
    l_quantity numeric(15,2) NOT NULL,
    l_extendedprice numeric(15,2) NOT NULL,
    l_discount numeric(15,2) NOT NULL,
    l_tax numeric(15,2) NOT NULL,
    l_returnflag char(1) NOT NULL,
    l_linestatus char(1) NOT NULL,
    l_shipdate date NOT NULL,
    l_commitdate date NOT NULL,
    l_receiptdate date NOT NULL,
    l_shipinstruct char(25) NOT NULL,
    l_shipmode char(10) NOT NULL,
    l_comment varchar(44) NOT NULL
);

-- indexes
ALTER TABLE lineitem_quoted ADD PRIMARY KEY (l_orderkey, l_linenumber);
