-- A client's table, %[1]s, as it is loaded: the other indexes come after that.
create table %[1]s (
  transactionid bigserial primary key,
  dateandtime timestamp without time zone,
  cashregisterid int not null,
  customerid int not null,
  productid int not null,
  price int not null,
  data varchar(4000)
);
alter sequence %[1]s_transactionid_seq cache 1000;
