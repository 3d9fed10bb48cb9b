-- Errors. Each kind of refusal has a SQLSTATE of its own; DETAIL is JSON with what a program needs.

create function gnomon.refuse(code text, message text, hint text default '', detail jsonb default '{}') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = code, message = message, hint = hint, detail = detail::text;
end $$;
comment on function gnomon.refuse is 'Raises an error of gnomon: a SQLSTATE of class GN, with the way out as hint.';
