-- Who changes rows. An entry carries the OID of the session's role, which nobody can choose, and a hash of everything else that is
-- known about the session; what the hash stands for is registered once. The setting annals.known says that it is, so that a statement
-- need not look. Whoever forges that setting hides the application, actor and address of his own entries, never his role.

create function annals.context_text() returns text
language sql stable set search_path = pg_catalog, pg_temp
-- Only the actor, which stands last, can hold the separator: so no two contexts look alike.
return concat(session_user, E'\n', current_setting('role'), E'\n', inet_client_addr(), E'\n', current_setting('application_name'), E'\n', current_setting('annals.actor', true));
comment on function annals.context_text is 'The context of this session. Capture functions hold the same expression.';

create function annals.register_context() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
<<named>>
declare
  context text := annals.context_text();
  hash bigint := hashtextextended(context, 0);
  -- One that an earlier transaction committed. One of this transaction may still vanish: with a savepoint, or when it is prepared and rolled back.
  lasting boolean := (select bool_or(c.at < now()) from annals.context c where c.hash = named.hash);
begin
  if lasting is null then
    insert into annals.context (hash, login, login_name, role_name, actor, application, client)
      select named.hash, to_regrole(quote_ident(session_user))::oid, session_user, current_setting('role'),
             coalesce(current_setting('annals.actor', true), ''), current_setting('application_name'), inet_client_addr();
  end if;
  -- Kept until the session ends if it lasts, else until the transaction ends; and gone with what is rolled back.
  perform set_config('annals.known', context, not coalesce(lasting, false));
  return hash;
end $$;
comment on function annals.register_context is 'Registers the context of this session, unless it is there, and returns its hash.';
revoke all on function annals.register_context from public;
