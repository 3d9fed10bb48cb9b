-- Errors. Each kind of refusal has a SQLSTATE of its own; DETAIL is JSON with what a program needs.

create function automerge.refuse(code text, message text, hint text default '', detail jsonb default '{}') returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = code, message = message, hint = hint, detail = jsonb_strip_nulls(detail)::text;
end $$;
comment on function automerge.refuse is 'Raises an error of this schema.';

create function automerge.hex(p_hashes bytea[]) returns text[]
language sql immutable set search_path = pg_catalog, pg_temp
return array(select encode(h, 'hex') from unnest(p_hashes) with ordinality u (h, n) order by n);
comment on function automerge.hex is 'Hashes as Automerge shows them.';

create function automerge.refuse_unknown(p_doc uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform automerge.refuse('AM001', format('there is no document %s', p_doc), 'Create it first. Where row-level security is enabled, the role must see it, and must be allowed to update it to write.',
    jsonb_build_object('doc', p_doc));
end $$;
comment on function automerge.refuse_unknown is 'Says that there is no such document, or none that the role may see or write.';
