-- The life of a row, see annals.life.

create function volvra.history(p_table regclass, p_key text[], p_limit int default null)
returns table (v bigint, transaction text, at timestamptz, operation text, key text[], columns jsonb, note text, login text, role text, actor text, application text, client inet)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  histories int[] := array(select k.id from annals.tracked k join volvra.coverage c on c.tracked = k.id where k.relation = p_table order by k.id desc);
begin
  if not has_table_privilege(p_table, 'select') then
    perform volvra.refuse('42501', format('permission denied for the history of %s', p_table), 'It takes SELECT on the table.');
  elsif histories = '{}' then
    perform volvra.refuse('VO003', format('table %s is not covered, and never was', p_table), 'Cover it with volvra.enable: its history begins then.', jsonb_build_object('table', p_table::text));
  end if;
  perform volvra.check_key(histories[1], to_jsonb(p_key));
  return query select l.v, l.transaction, l.at, l.operation, l.key, l.columns, l.note, l.login, l.role, l.actor, l.application, l.client
    from annals.life(histories, p_key) l order by l.v desc limit p_limit;
end $$;
comment on function volvra.history is 'The life of the rows that ever had a key, newest change first: what was done, which columns changed from what to what (as text), when, and by whom. Rows are followed through changes of their key. Updates that changed nothing are left out. A note says where something is not known: erased, hidden from the caller, or not captured.';
