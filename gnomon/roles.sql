-- Creates the roles that don't exist. Somebody else may be doing the same from another database: who loses finds the role there.
do $$
declare
  role record;
begin
  for role in
    select * from (values ('gnomon_viewer', 'May read the past of the tables that it may read'), ('gnomon_operator', 'May read the past, set tags and follow changes'),
        ('gnomon_admin', 'May decide which tables are tracked and what is pruned')) r (name, comment)
      where r.name not in (select rolname from pg_catalog.pg_roles)
  loop
    begin
      execute pg_catalog.format('create role %I nologin', role.name);
      execute pg_catalog.format('comment on role %I is %L', role.name, role.comment);
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end $$
