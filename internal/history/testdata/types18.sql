alter table "Sch ema"."ta""ble" add virtual int generated always as (i4 % 10) virtual, add after_virtual text default 'later', add i3 interval default '-infinity';
