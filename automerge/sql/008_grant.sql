-- Who may do what. Installing takes away what PostgreSQL gives to everybody, and grants nothing.

-- Every function of the schema stands here once.
create view automerge.access (function, who) with (security_invoker = true) as
  select unnest(array['ancestors', 'changes', 'contains', 'heads', 'hex', 'holds', 'known', 'last_of', 'merge', 'merged', 'not_new', 'refuse', 'refuse_unknown', 'save', 'split_hashes']), 'reader'
  union all
  select unnest(array['append', 'look']), 'writer'
  union all
  select unnest(array['grant_access', 'write', 'write_append', 'write_changes', 'write_peer', 'write_snapshot']), 'owner';
comment on view automerge.access is 'Which functions automerge.grant_access lets whom execute.';
comment on column automerge.access.function is 'Name of a function of the schema automerge.';
comment on column automerge.access.who is 'reader, writer (who may do all that a reader may) or owner (nobody else).';

create function automerge.grant_access(p_reader text, p_writer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  grantee text;
  f regprocedure;
begin
  -- Everybody may execute a new function, and so it is after restoring a dump without privileges.
  revoke all on schema automerge from public;
  revoke all on all tables in schema automerge from public;
  revoke all on all sequences in schema automerge from public;
  revoke all on all routines in schema automerge from public;
  foreach grantee in array array_remove(array[p_reader, p_writer], null) loop
    if not exists (select from pg_roles where rolname = grantee) then
      perform automerge.refuse('AM009', format('role %L does not exist', grantee), 'Create it first: the function CreateRoles of the Go package does, or CREATE ROLE.');
    end if;
    execute format('grant usage on schema automerge to %I', grantee);
    execute format('grant select on all tables in schema automerge to %I', grantee);
  end loop;
  if p_writer is not null then
    execute format('grant insert (id, owner, tenant, whole, paths), update (owner, tenant), delete on automerge.document to %I', p_writer);
    execute format('grant update on automerge.writing, automerge.appending, automerge.syncing to %I', p_writer);
  end if;
  for f, grantee in
    select p.oid, g.role from pg_proc p join automerge.access a on a.function = p.proname
                              join (values ('reader', p_reader), ('reader', p_writer), ('writer', p_writer)) g (who, role) on g.who = a.who
      where p.pronamespace = 'automerge'::regnamespace and g.role is not null
  loop
    execute format('grant execute on routine %s to %I', f, grantee);
  end loop;
end $$;
comment on function automerge.grant_access is 'Lets one role read documents and another one also write them (null: none such), and nobody else unless granted otherwise. Policies of automerge.document say which documents. For the owner; to be called again after an upgrade, and as often as one likes.';

select automerge.grant_access(null, null);
