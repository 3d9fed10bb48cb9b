-- Marks: named moments to which one can undo. A mark sees what was committed when it was set and, of its own transaction, what was done
-- before it. So it works within the transaction that set it as well.

create table volvra.mark_point (
  name text primary key,
  v bigint not null,
  epoch int not null,
  snapshot pg_snapshot not null,
  xid xid8 not null,
  coordinate text not null,
  at timestamptz not null,
  login text not null
);
comment on table volvra.mark_point is 'Marks: see volvra.mark.';
comment on column volvra.mark_point.name is 'Name of the mark.';
comment on column volvra.mark_point.v is 'Position of the mark: of its own transaction it sees entries up to here.';
comment on column volvra.mark_point.epoch is 'Epoch of the transaction ids.';
comment on column volvra.mark_point.snapshot is 'What was committed then.';
comment on column volvra.mark_point.xid is 'The transaction that set it.';
comment on column volvra.mark_point.coordinate is 'The coordinate at which it was set; it does not see the mark''s own transaction.';
comment on column volvra.mark_point.at is 'When it was set.';
comment on column volvra.mark_point.login is 'The role that set it (session_user).';

create function volvra.mark(p_name text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  m volvra.mark_point;
begin
  if coalesce(p_name, '') = '' or length(p_name) > 200 then
    perform volvra.refuse('VO020', 'a mark needs a name', 'It has 1 to 200 characters.');
  end if;
  -- The id first: the coordinate then lists this transaction as unseen.
  m.xid := pg_current_xact_id();
  m.coordinate := annals.coordinate();
  m.snapshot := split_part(m.coordinate, '/', 2)::pg_snapshot;
  insert into volvra.mark_point (name, v, epoch, snapshot, xid, coordinate, at, login)
    values (p_name, nextval('annals.v'), annals.present_epoch(), m.snapshot, m.xid, m.coordinate, clock_timestamp(), session_user)
    on conflict (name) do nothing returning * into m;
  if not found then
    perform volvra.refuse('VO021', format('there is a mark %L already', p_name), 'Drop it with volvra.drop_mark, or choose another name.', jsonb_build_object('mark', p_name));
  end if;
  -- Transactions that were open may have lower positions than the mark and are not seen by it.
  insert into annals.pin (owner, name, v) values ('volvra mark', p_name, least(m.v, annals.lower_bound(m.snapshot)));
  return m.coordinate;
end $$;
comment on function volvra.mark is 'Sets a mark, to which volvra.undo_to goes back, and keeps history from there on; returns its coordinate.';

create function volvra.mark_place(p_name text, out epoch int, out snapshot pg_snapshot, out xid xid8, out v bigint) returns record
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  m volvra.mark_point;
begin
  select * into m from volvra.mark_point p where p.name = p_name;
  if not found then
    perform volvra.refuse('VO022', format('there is no mark %L', p_name), 'volvra.marks lists them.', jsonb_build_object('mark', p_name));
  end if;
  epoch := m.epoch;
  snapshot := m.snapshot;
  xid := m.xid;
  v := m.v;
end $$;
comment on function volvra.mark_place is 'What a mark sees.';

create function volvra.drop_mark(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform volvra.mark_place(p_name);
  delete from volvra.mark_point p where p.name = p_name;
  delete from annals.pin p where p.owner = 'volvra mark' and p.name = p_name;
end $$;
comment on function volvra.drop_mark is 'Removes a mark; history is no longer kept for its sake.';

create view volvra.marks as select p.name, p.coordinate, p.v, p.at, p.login from volvra.mark_point p;
comment on view volvra.marks is 'The marks that are set.';
comment on column volvra.marks.name is 'Name of the mark.';
comment on column volvra.marks.coordinate is 'The coordinate at which it was set.';
comment on column volvra.marks.v is 'Its position among the entries of all histories.';
comment on column volvra.marks.at is 'When it was set.';
comment on column volvra.marks.login is 'The role that set it.';
