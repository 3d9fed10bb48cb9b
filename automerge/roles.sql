-- Creates the roles that don't exist. Somebody else may be doing the same from another database: who loses finds the role there.
do $$
declare
  role record;
begin
  for role in
    select * from (values ('automerge_reader', 'May read documents in the schema automerge'), ('automerge_writer', 'May read and write documents in the schema automerge')) r (name, comment)
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
