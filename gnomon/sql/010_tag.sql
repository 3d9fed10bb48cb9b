-- Tags: names of places. Each keeps history from its place on from being pruned. A tag outlasts crashes and promotions: its place is one
-- that the transaction which wrote it saw, so all that the place sees was in the log before the tag, and is there wherever the tag is.

create function gnomon.check_tag(p_name text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_name is null or p_name = '' or length(p_name) > 200 then
    perform gnomon.refuse('GN006', format('%s is no name for a tag', coalesce(quote_literal(left(p_name, 20)), 'null')), 'It has 1 to 200 characters.');
  end if;
end $$;
comment on function gnomon.check_tag is 'Refuses what cannot be the name of a tag.';

create function gnomon.unknown_tag(p_name text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.refuse('GN004', format('there is no tag %L', coalesce(p_name, '')), 'gnomon.tags() lists them.', jsonb_build_object('tag', p_name));
end $$;
comment on function gnomon.unknown_tag is 'Says that there is no such tag.';

create function gnomon.pin_place(p_owner text, p_name text, p gnomon.place) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into annals.pin (owner, name, v) values (p_owner, p_name, p.bound + 1) on conflict (owner, name) do update set v = excluded.v, at = clock_timestamp()
$$;
comment on function gnomon.pin_place is 'Keeps history from a place on from being pruned.';

create function gnomon.tag(p_name text, p_ref text default 'now', p_note text default '') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
  coordinate text;
begin
  perform gnomon.check_tag(p_name);
  p := gnomon.place_of(p_ref);
  insert into gnomon.tag as t (name, coordinate, snapshot, epoch, v, note) values (p_name, p.coordinate, p.snapshot, p.epoch, p.bound, coalesce(p_note, ''))
    on conflict (name) do nothing returning t.coordinate into coordinate;
  if not found then
    perform gnomon.refuse('GN005', format('there is a tag %L already', p_name), 'gnomon.move_tag gives it another place.', jsonb_build_object('tag', p_name));
  end if;
  perform gnomon.pin_place('gnomon tag', p_name, p);
  return coordinate;
end $$;
comment on function gnomon.tag is 'Names a place, by default what is committed now without the changes of the calling transaction; returns its coordinate. History from there on is kept until the tag is dropped.';

create function gnomon.move_tag(p_name text, p_ref text default 'now') returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  p gnomon.place;
begin
  -- Locked first, so that the later of two moves wins.
  perform from gnomon.tag t where t.name = p_name for update;
  if not found then
    perform gnomon.unknown_tag(p_name);
  end if;
  p := gnomon.place_of(p_ref);
  update gnomon.tag t set coordinate = p.coordinate, snapshot = p.snapshot, epoch = p.epoch, v = p.bound, at = clock_timestamp(), login = session_user where t.name = p_name;
  perform gnomon.pin_place('gnomon tag', p_name, p);
  return p.coordinate;
end $$;
comment on function gnomon.move_tag is 'Gives a tag another place, by default what is committed now; returns its coordinate. History before it is no longer kept for the tag.';

create function gnomon.rename_tag(p_name text, p_to text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform gnomon.check_tag(p_to);
  begin
    update gnomon.tag t set name = p_to where t.name = p_name;
    if not found then
      perform gnomon.unknown_tag(p_name);
    end if;
  exception when unique_violation then
    perform gnomon.refuse('GN005', format('there is a tag %L already', p_to), 'Drop or rename that one first.', jsonb_build_object('tag', p_to));
  end;
  update annals.pin p set name = p_to where p.owner = 'gnomon tag' and p.name = p_name;
end $$;
comment on function gnomon.rename_tag is 'Gives a tag another name.';

create function gnomon.drop_tag(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from gnomon.tag t where t.name = p_name;
  if not found then
    perform gnomon.unknown_tag(p_name);
  end if;
  delete from annals.pin p where p.owner = 'gnomon tag' and p.name = p_name;
end $$;
comment on function gnomon.drop_tag is 'Drops a tag. What history only it kept may be pruned then.';

create function gnomon.tags() returns table (name text, coordinate text, at timestamptz, login text, note text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- With the marker of today: so a coordinate of before a crash can be used. One of another epoch stays as it was.
  select t.name, case when t.epoch = e.number then regexp_replace(t.coordinate, '^[^/]*', e.marker) else t.coordinate end, t.at, t.login, t.note
  from gnomon.tag t left join gnomon.epoch() e on true order by t.at, t.name
$$;
comment on function gnomon.tags is 'The tags, with their places, since when, by whom, and what was written about them; the oldest first.';
