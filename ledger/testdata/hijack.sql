-- A schema in which everything that PostgreSQL has for the usual types stands again, and raises an error when it is called.
create schema trap;
create table trap.type (name) as select unnest(array['uuid', 'numeric', 'int4', 'int8', 'text', 'timestamptz', 'jsonb', 'bool', 'interval', '_uuid', '_int4', '_text', '_numeric', 'name', 'oid', 'bpchar', 'float8'])::regtype;
create function trap.spring() returns text language plpgsql as $$ begin raise exception 'trapped %', current_user using errcode = 'TRAP1'; end $$;
do $do$
declare
  f record;
begin
  for f in
    select p.proname, pg_get_function_identity_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
      from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.provariadic = 0
       and not exists (select from unnest(p.proargtypes) a where a::oid not in (select name from trap.type)) and p.prorettype in (select name from trap.type)
  loop
    execute format('create or replace function trap.%I(%s) returns %s language plpgsql as ''begin perform trap.spring(); end''', f.proname, f.arguments, f.result);
  end loop;
  for f in
    select o.oprname, format_type(o.oprleft, null) as lefttype, format_type(o.oprright, null) as righttype, format_type(o.oprresult, null) as result, o.oid
      from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprkind = 'b'
       and o.oprleft in (select name from trap.type) and o.oprright in (select name from trap.type) and o.oprresult in (select name from trap.type)
  loop
    execute format('create function trap.op_%s(%s, %s) returns %s language plpgsql as ''begin perform trap.spring(); end''', f.oid, f.lefttype, f.righttype, f.result);
    execute format('create operator trap.%s (function = trap.op_%s, leftarg = %s, rightarg = %s)', f.oprname, f.oid, f.lefttype, f.righttype);
  end loop;
end $do$;
grant usage on schema trap to public;
