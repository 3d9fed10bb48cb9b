-- Creates the roles that don't exist. Somebody else may be doing the same from another database: who loses finds the role there.
do $$
declare
  role record;
begin
  for role in
    select * from (values ('volvra_viewer', 'May read histories of the tables that it may read'), ('volvra_operator', 'May read histories and undo changes'),
        ('volvra_admin', 'May decide which tables have their history kept')) r (name, comment)
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
