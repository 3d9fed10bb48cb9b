-- What PostgreSQL 18 adds.
alter table city.street add double int generated always as (id * 2) virtual;
alter table city.street add constraint street_soft check (id < 10) not enforced;
alter table city.street add constraint street_note not null note not valid;
create table city.rent (id int4range, during daterange, primary key (id, during without overlaps));
create table city.tenant (id int4range, during daterange,
    constraint tenant_rent foreign key (id, period during) references city.rent (id, period during));
alter table "Sch ema"."ta""ble" add constraint soft foreign key ("select") references city.street not enforced;
