-- Branches. A branch is a row here, and the rows that were changed on it are in the overlays of their tables (see gnomon.make_overlay): it shows
-- its base, a place of the past, with its own changes over it. So making one copies nothing and changes no table.
--
-- A branch of a branch begins with a copy of its parent's changes, so how deep it is makes no difference to who reads it.

create table gnomon.branch (
  id int primary key generated always as identity,
  name text not null unique check (name <> '' and length(name) <= 200),
  logged boolean not null,
  parent int references gnomon.branch on delete set null,
  coordinate text not null,
  snapshot pg_snapshot not null,
  epoch int not null,
  bound bigint not null,
  base int not null default 0,
  forked_snapshot pg_snapshot,
  forked_epoch int,
  forked_bound bigint,
  owner name not null default current_user,
  note text not null default '',
  protected boolean not null default false,
  reads boolean not null default false,
  expires_at timestamptz,
  at timestamptz not null default clock_timestamp(),
  refreshed_at timestamptz
);
create index branch_parent on gnomon.branch (parent) where parent is not null;
create index branch_expires on gnomon.branch (expires_at) where expires_at is not null;
comment on table gnomon.branch is 'Branches.';
comment on column gnomon.branch.id is 'Number of the branch: overlays carry it.';
comment on column gnomon.branch.name is 'The name.';
comment on column gnomon.branch.logged is 'Each step on it is kept, so that it has a past of its own; else only the last state of each row is.';
comment on column gnomon.branch.parent is 'The branch that it was made from; null for one of main, or when that is gone.';
comment on column gnomon.branch.coordinate is 'The place whose rows it shows where it has none of its own.';
comment on column gnomon.branch.snapshot is 'The snapshot of that place.';
comment on column gnomon.branch.epoch is 'Epoch of the snapshot.';
comment on column gnomon.branch.bound is 'Entries that the snapshot does not see have higher positions.';
comment on column gnomon.branch.base is 'How often the base was moved.';
comment on column gnomon.branch.forked_snapshot is 'The snapshot of the base that it had when it was made from its parent, if it has got a later one since: merges into the parent look at rows there.';
comment on column gnomon.branch.forked_epoch is 'Epoch of that snapshot.';
comment on column gnomon.branch.forked_bound is 'Entries that it does not see have higher positions.';
comment on column gnomon.branch.owner is 'The role that made it.';
comment on column gnomon.branch.note is 'What somebody wrote about it.';
comment on column gnomon.branch.protected is 'It can neither be written nor dropped.';
comment on column gnomon.branch.reads is 'What is read on it is noted, see gnomon.read.';
comment on column gnomon.branch.expires_at is 'Upkeep drops it then; null: never.';
comment on column gnomon.branch.at is 'When it was made.';
comment on column gnomon.branch.refreshed_at is 'When its base was moved last.';
comment on index gnomon.branch_parent is 'Finds the branches of a branch.';
comment on index gnomon.branch_expires is 'Finds branches whose time has come.';

create table gnomon.confinement (
  role regrole primary key,
  id int unique generated always as identity,
  names text[] not null default '{}',
  prefixes text[] not null default '{}'
);
comment on table gnomon.confinement is 'Roles that may use certain branches only, and nothing of main, see gnomon.confine.';
comment on column gnomon.confinement.role is 'The role, whatever its name becomes.';
comment on column gnomon.confinement.id is 'Number of the confinement: schemas of its views are gnomon_lent_<id>_<source>.';
comment on column gnomon.confinement.names is 'Names of branches that it may use.';
comment on column gnomon.confinement.prefixes is 'How names of branches begin that it may use, make and drop.';

create table gnomon.loan (
  role regrole not null references gnomon.confinement on delete cascade,
  tracked int not null references gnomon.history on delete cascade,
  rights text[] not null check (rights <> '{}' and rights <@ array['select', 'insert', 'update', 'delete']),
  masks jsonb not null default '{}',
  schema_name name,
  primary key (role, tracked)
);
create index loan_tracked on gnomon.loan (tracked);
comment on table gnomon.loan is 'Tables that roles who are confined may read or write on their branches.';
comment on column gnomon.loan.role is 'The role.';
comment on column gnomon.loan.tracked is 'The history of the table. A table that is tracked anew has another one, and is not lent.';
comment on column gnomon.loan.rights is 'What it may do: select, insert, update, delete.';
comment on column gnomon.loan.masks is 'Columns that are not shown, by their numbers: constants that stand for their values.';
comment on column gnomon.loan.schema_name is 'Schema of the view that shows the table to the role; null when there is none at present.';
comment on index gnomon.loan_tracked is 'Finds the roles to whom a table is lent.';

-- By the login, which no SET ROLE changes: also of who may become such a role. Who has the rights of gnomon's owner, as superusers have, is not held back by what that has made.
create view gnomon.confined as
  select c.role, c.id, c.names, c.prefixes from gnomon.confinement c
  where pg_has_role(session_user, c.role::oid, case when current_setting('server_version_num')::int >= 160000 then 'USAGE, SET' else 'MEMBER' end)
    and not pg_has_role(session_user, (select n.nspowner from pg_namespace n where n.nspname = 'gnomon'), case when current_setting('server_version_num')::int >= 160000 then 'USAGE, SET' else 'MEMBER' end);
comment on view gnomon.confined is 'The confinements that hold for the session: those of its login, and of roles that this is a member of.';
comment on column gnomon.confined.role is 'The role.';
comment on column gnomon.confined.id is 'Number of the confinement.';
comment on column gnomon.confined.names is 'Names of branches that it may use.';
comment on column gnomon.confined.prefixes is 'How names of branches begin that it may use, make and drop.';

create view gnomon.lent as select l.tracked, l.role, l.schema_name from gnomon.loan l join gnomon.confined c on c.role = l.role;
comment on view gnomon.lent is 'The tables that are lent to the session.';
comment on column gnomon.lent.tracked is 'The history.';
comment on column gnomon.lent.role is 'The role to whom it is lent.';
comment on column gnomon.lent.schema_name is 'Schema of the view that shows the table.';

create function gnomon.is_confined() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select exists (select from gnomon.confined) $$;
comment on function gnomon.is_confined is 'Whether the session is confined to branches.';

create function gnomon.may_use(p_branch int, p_name text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select not exists (select from gnomon.confined c where p_name <> all (c.names) and not exists (select from unnest(c.prefixes) x (prefix) where starts_with(p_name, x.prefix))));
end $$;
comment on function gnomon.may_use is 'Whether the session may use a branch: roles that are confined may use certain ones only.';

create function gnomon.check_may_manage(p_name text, p_from text default 'now', p_at text default null) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from gnomon.confined c where not exists (select from unnest(c.prefixes) x (prefix) where starts_with(p_name, x.prefix))) then
    perform gnomon.refuse('GN027', format('role %s is confined, and may not make, rename, reset or drop a branch %L', session_user, p_name), 'It may use the names that begin as gnomon.confine said.', jsonb_build_object('branch', p_name, 'reason', 'name'));
  end if;
  if (p_from <> 'now' and p_from not like 'branch:%' or p_at like 'tag:%') and gnomon.is_confined() then
    perform gnomon.refuse('GN027', format('role %s is confined, and may begin with the present or with a branch of its own only', session_user), 'Say now, or branch:name.', jsonb_build_object('branch', p_name, 'reason', 'base'));
  end if;
end $$;
comment on function gnomon.check_may_manage is 'Refuses what a confined role may not do with branches: only those whose names begin as it was told does it make, rename, reset and drop, and no base of them lies in the past.';

create function gnomon.check_branch_name(p_name text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_name is null or p_name = '' or length(p_name) > 200 then
    perform gnomon.refuse('GN006', format('%s is no name for a branch', coalesce(quote_literal(left(p_name, 20)), 'null')), 'It has 1 to 200 characters.');
  end if;
end $$;
comment on function gnomon.check_branch_name is 'Refuses what cannot be the name of a branch.';

create function gnomon.branch_named(p_name text) returns gnomon.branch
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch;
begin
  select * into b from gnomon.branch x where x.name = p_name;
  if not found or not gnomon.may_use(b.id, b.name) then
    perform gnomon.refuse('GN016', format('there is no branch %L', coalesce(p_name, '')), 'gnomon.branches() lists them.', jsonb_build_object('branch', p_name));
  end if;
  return b;
end $$;
comment on function gnomon.branch_named is 'The branch of a name; an error when there is none, or none that the session may use.';

create function gnomon.branch_of(p_id int) returns gnomon.branch
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch;
begin
  select * into b from gnomon.branch x where x.id = p_id and gnomon.may_use(x.id, x.name);
  return b;
end $$;
comment on function gnomon.branch_of is 'The branch of a number; null when there is none, or none that the session may use.';

create function gnomon.begin_branching() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  t record;
begin
  if exists (select from gnomon.branch) then
    return;
  end if;
  -- Who begins to track a table meanwhile waits, and then sees that there are branches; or this waits, and then sees the table.
  perform pg_advisory_xact_lock(1735289710, 0);
  if exists (select from gnomon.branch) then
    return;
  end if;
  -- Before there is a place: it shall see the views that show it.
  for t in select k.id, k.relation from annals.tracked k join gnomon.history h on h.tracked = k.id join pg_class c on c.oid = k.relation where k.ended_v is null and not exists (select from gnomon.route r where r.tracked = k.id and r.kind = 'branch' and not r.guarded) order by k.id loop
    perform gnomon.branch_out(t.id);
  end loop;
end $$;
comment on function gnomon.begin_branching is 'Makes what branches of tables take, before the first one is made: overlays and views.';

create function gnomon.branch_out(p_tracked int) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  working text := coalesce(current_setting('annals.working', true), '');
  form int := (select s.number from gnomon.shapes(p_tracked) s where s.present);
  numbers int[] := array(select g.number from annals.segment g where g.tracked = p_tracked and g.number >= form and g.epoch = (select max(e.number) from annals.epoch e) order by g.number);
begin
  perform set_config('annals.working', 'yes', true);
  if gnomon.make_overlay(p_tracked) then
    perform gnomon.write_changed(p_tracked);
    perform gnomon.write_merge_view(p_tracked);
    perform gnomon.write_branch_rows(p_tracked, form, numbers, gnomon.today_of(p_tracked, form));
    perform gnomon.write_route(p_tracked, 'branch', form, numbers, gnomon.today_of(p_tracked, form), null, false);
    perform gnomon.write_loans(p_tracked);
  end if;
  perform set_config('annals.working', working, true);
end $$;
comment on function gnomon.branch_out is 'Makes what branches of a table take: its overlay, and the views and triggers by which its rows are read and written there.';

create function gnomon.create_branch(p_name text, p_from text default 'now', p_logged boolean default false, p_note text default '', p_expires_at timestamptz default null, p_reads boolean default false, p_at text default null) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  parent gnomon.branch;
  past gnomon.place; -- of the parent
  id int;
begin
  perform gnomon.check_branch_name(p_name);
  perform gnomon.check_may_manage(p_name, p_from, p_at);
  if p_from like 'branch:%' then
    -- Its base and its changes are copied as they are together.
    parent := gnomon.hold_branch(substr(p_from, 8), true);
    p.coordinate := parent.coordinate;
    p.snapshot := parent.snapshot;
    p.epoch := parent.epoch;
    p.bound := parent.bound;
    if p_at is not null then
      past := gnomon.branch_past(parent, p_at);
    end if;
  else
    perform gnomon.begin_branching();
    p := gnomon.place_of(p_from);
  end if;
  insert into gnomon.branch as b (name, logged, parent, coordinate, snapshot, epoch, bound, owner, note, expires_at, reads)
    values (p_name, p_logged, parent.id, p.coordinate, p.snapshot, p.epoch, p.bound, session_user, coalesce(p_note, ''), p_expires_at, p_reads)
    on conflict (name) do nothing returning b.id into id;
  if not found then
    perform gnomon.refuse('GN017', format('there is a branch %L already', p_name), 'Choose another name, or drop it.', jsonb_build_object('branch', p_name));
  end if;
  insert into annals.pin (owner, name, v) values ('gnomon branch', id::text, p.bound + 1);
  if parent.id is not null then
    perform gnomon.copy_overlays(parent.id, id, past);
    if p_reads then
      perform gnomon.copy_reads(parent.id, id);
    end if;
  end if;
  return id;
end $$;
comment on function gnomon.create_branch is 'Makes a branch: from a place (a coordinate, tag:name, a time, or now), or of another branch (branch:name), with the changes on that, as they are or, if it is logged, as they were at a place (p_at). Returns its number.';

create function gnomon.branch_past(p_branch gnomon.branch, p_at text) returns gnomon.place
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place := gnomon.place_of(p_at);
begin
  if not p_branch.logged then
    perform gnomon.refuse('GN020', format('branch %L has no past: it keeps the last state of its rows only', p_branch.name), 'Make it with p_logged => true (Logged in Go).', jsonb_build_object('branch', p_branch.name, 'reason', 'net'));
  end if;
  if not annals.snapshot_covers(p.snapshot, p_branch.snapshot) then
    perform gnomon.refuse('GN006', format('the base of branch %L is later than %s', p_branch.name, p_at), 'Name a place since it was made, and since its base was moved last.', jsonb_build_object('branch', p_branch.name));
  end if;
  return p;
end $$;
comment on function gnomon.branch_past is 'A place in the past of a logged branch; an error for one that its log does not reach.';

create function gnomon.lock_branch(p_branch int, p_shared boolean) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select case when p_shared then pg_advisory_xact_lock_shared(1735289709, p_branch) else pg_advisory_xact_lock(1735289709, p_branch) end
$$;
comment on function gnomon.lock_branch is 'Writers of a branch hold this together until they commit; who merges, resets or drops it holds it alone.';

create function gnomon.hold_branch(p_name text, p_shared boolean) returns gnomon.branch
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_named(p_name);
begin
  perform gnomon.lock_branch(b.id, p_shared);
  -- Who held it before may have changed it.
  b := gnomon.branch_of(b.id);
  if b.id is null then
    b := gnomon.branch_named(p_name);
  end if;
  return b;
end $$;
comment on function gnomon.hold_branch is 'Locks the branch of a name as gnomon.lock_branch does, and returns it as it is then.';

create function gnomon.check_unprotected(p_branch gnomon.branch) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_branch.protected then
    perform gnomon.refuse('GN018', format('branch %L is protected', p_branch.name), 'gnomon.protect_branch(name, false) lifts that.', jsonb_build_object('branch', p_branch.name));
  end if;
end $$;
comment on function gnomon.check_unprotected is 'Refuses to go on with a branch that is protected.';

create function gnomon.rename_branch(p_name text, p_to text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.branch_named(p_name);
begin
  perform gnomon.check_branch_name(p_to);
  perform gnomon.check_may_manage(p_name);
  perform gnomon.check_may_manage(p_to);
  update gnomon.branch x set name = p_to where x.id = b.id;
exception when unique_violation then
  perform gnomon.refuse('GN017', format('there is a branch %L already', p_to), 'Choose another name, or drop it.', jsonb_build_object('branch', p_to));
end $$;
comment on function gnomon.rename_branch is 'Gives a branch another name.';

create function gnomon.describe_branch(p_name text, p_note text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ update gnomon.branch b set note = coalesce(p_note, '') where b.id = (gnomon.branch_named(p_name)).id $$;
comment on function gnomon.describe_branch is 'Writes a note about a branch.';

create function gnomon.expire_branch(p_name text, p_at timestamptz) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$ update gnomon.branch b set expires_at = p_at where b.id = (gnomon.branch_named(p_name)).id $$;
comment on function gnomon.expire_branch is 'Says when upkeep drops a branch; null: never.';

create function gnomon.protect_branch(p_name text, p_protected boolean default true) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.hold_branch(p_name, false); -- who is writing on it ends first
begin
  update gnomon.branch x set protected = p_protected where x.id = b.id;
end $$;
comment on function gnomon.protect_branch is 'Protects a branch from being written, merged into, reset and dropped, or no longer does.';

create function gnomon.drop_branch(p_name text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.hold_branch(p_name, false);
  rows bigint;
begin
  perform gnomon.check_may_manage(p_name);
  perform gnomon.check_unprotected(b);
  rows := gnomon.clear_overlays(b.id);
  delete from annals.pin p where p.owner = 'gnomon branch' and p.name = b.id::text;
  perform gnomon.orphan_branches(b.id);
  delete from gnomon.branch x where x.id = b.id;
  return rows;
end $$;
comment on function gnomon.drop_branch is 'Drops a branch with its changes, and returns how many rows they were. Branches made from it stay. Waits for who is writing on it.';

create function gnomon.orphan_branches(p_parent int) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with orphans as (update gnomon.branch b set parent = null, forked_snapshot = null, forked_epoch = null, forked_bound = null where b.parent = p_parent returning b.id, b.bound)
  update annals.pin k set v = o.bound + 1 from orphans o where k.owner = 'gnomon branch' and k.name = o.id::text
$$;
comment on function gnomon.orphan_branches is 'Branches of a branch that goes are branches of main.';

create function gnomon.drop_expired_branches() returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch;
  dropped int := 0;
begin
  -- Each takes a lock until the transaction ends, so not too many at once.
  for b in select * from gnomon.branch x where x.expires_at <= now() and not x.protected order by x.expires_at limit 1000 loop
    if pg_try_advisory_xact_lock(1735289709, b.id) then
      -- Somebody may have given it more time meanwhile.
      if exists (select from gnomon.branch x where x.id = b.id and x.expires_at <= now() and not x.protected for update) then
        perform gnomon.orphan_branches(b.id);
        delete from gnomon.branch x where x.id = b.id;
        perform gnomon.clear_overlays(b.id);
        delete from annals.pin p where p.owner = 'gnomon branch' and p.name = b.id::text;
        dropped := dropped + 1;
      end if;
    end if;
  end loop;
  return dropped;
end $$;
comment on function gnomon.drop_expired_branches is 'Drops branches whose time has come, a thousand at most, but for those that are protected or being written; returns how many.';

create function gnomon.reset_branch(p_name text, p_to text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  b gnomon.branch := gnomon.hold_branch(p_name, false);
  p gnomon.place;
  rows bigint;
begin
  perform gnomon.check_may_manage(p_name, coalesce(p_to, 'now'));
  perform gnomon.check_unprotected(b);
  rows := gnomon.clear_overlays(b.id);
  if p_to is not null then
    p := gnomon.place_of(p_to);
    perform gnomon.move_base(b.id, p);
  end if;
  -- Who read a row before, and waited to write it, finds another base and not the row's former state taken for that.
  update gnomon.branch x set parent = null, base = x.base + 1, forked_snapshot = null, forked_epoch = null, forked_bound = null where x.id = b.id returning x.bound into p.bound;
  update annals.pin k set v = p.bound + 1 where k.owner = 'gnomon branch' and k.name = b.id::text;
  return rows;
end $$;
comment on function gnomon.reset_branch is 'Takes back all changes on a branch, so that it is its base again, or another place (p_to); returns how many rows they were.';

create function gnomon.move_base(p_branch int, p gnomon.place) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update gnomon.branch b set coordinate = p.coordinate, snapshot = p.snapshot, epoch = p.epoch, bound = p.bound, base = b.base + 1, refreshed_at = clock_timestamp(),
      forked_snapshot = case when b.parent is not null then coalesce(b.forked_snapshot, b.snapshot) end, forked_epoch = case when b.parent is not null then coalesce(b.forked_epoch, b.epoch) end,
      forked_bound = case when b.parent is not null then coalesce(b.forked_bound, b.bound) end
    where b.id = p_branch;
  update annals.pin k set v = least(b.bound, b.forked_bound) + 1, at = clock_timestamp() from gnomon.branch b where b.id = p_branch and k.owner = 'gnomon branch' and k.name = p_branch::text;
$$;
comment on function gnomon.move_base is 'Gives a branch another base. Of a branch of another one that which they had in common is kept as well.';

create function gnomon.branches(p_id int default null) returns table (id int, name text, logged boolean, parent text, coordinate text, owner name, note text, protected boolean, reads boolean, expires_at timestamptz, at timestamptz, refreshed_at timestamptz, changed_rows bigint, pinned_v bigint, pinned_for interval)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  counts jsonb := gnomon.overlay_counts(p_id);
begin
  return query
    select b.id, b.name, b.logged, (select p.name from gnomon.branch p where p.id = b.parent and gnomon.may_use(p.id, p.name)), b.coordinate, b.owner, b.note, b.protected, b.reads, b.expires_at, b.at, b.refreshed_at,
           coalesce((counts->>b.id::text)::bigint, 0), least(b.bound, b.forked_bound) + 1, clock_timestamp() - coalesce(b.refreshed_at, b.at)
    from gnomon.branch b where (p_id is null or b.id = p_id) and gnomon.may_use(b.id, b.name) order by b.id;
end $$;
comment on function gnomon.branches is 'The branches that the session may use, or the one of a number, with how many rows each has changed, and from which position on it keeps history from being pruned.';
