-- Appending, for SQL clients. What can be checked without reading operations is checked at once, the rest by a worker (Run of the Go package):
-- only then it becomes part of the document.

create view automerge.appending with (security_invoker = true) as
  select d.id, null::bytea as chunk, null::bytea as hash from automerge.document d for key share;
comment on view automerge.appending is 'Where automerge.append puts chunks: for those who may update the document.';

create function automerge.write_append() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into automerge.queue (doc, chunk, hash) values (old.id, new.chunk, new.hash);
  perform pg_notify('automerge_queue', '');
  return new;
end $$;
comment on function automerge.write_append is 'Puts a chunk into the queue.';
create trigger write_append instead of update on automerge.appending for each row execute function automerge.write_append();
comment on trigger write_append on automerge.appending is 'Puts what is put into the view into the queue.';

create function automerge.append(p_doc uuid, p_chunk bytea) returns bytea
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  kind int; at int; shift int := 0; size bigint := 0; octet int; body bytea; change_hash bytea; deps bytea[]; lacking bytea[];
begin
  perform automerge.heads(p_doc);
  if p_chunk is null or length(p_chunk) < 10 or substring(p_chunk for 4) <> decode('856f4a83', 'hex') then
    perform automerge.refuse('AM005', 'this is no chunk of Automerge: it does not begin as one', 'Send a change or a save as Automerge writes it.', jsonb_build_object('doc', p_doc));
  end if;
  kind := get_byte(p_chunk, 8);
  at := 9;
  loop  -- the length, seven bits a byte
    if at >= length(p_chunk) or at > 13 then
      perform automerge.refuse('AM005', 'the chunk ends within its length', 'It was cut off.', jsonb_build_object('doc', p_doc));
    end if;
    octet := get_byte(p_chunk, at);
    size := size | ((octet & 127)::bigint << shift);
    shift := shift + 7;
    at := at + 1;
    exit when octet < 128;
  end loop;
  if at + size <> length(p_chunk) then
    perform automerge.refuse('AM005', format('the chunk says that its content has %s bytes, and has %s', size, length(p_chunk) - at), 'Send chunks one by one, each whole.', jsonb_build_object('doc', p_doc));
  end if;
  if kind = 1 then
    change_hash := sha256(substring(p_chunk from 9));
    if substring(change_hash for 4) <> substring(p_chunk from 5 for 4) then
      perform automerge.refuse('AM005', 'the checksum of the chunk is wrong', 'It was damaged on its way.', jsonb_build_object('doc', p_doc));
    end if;
    if automerge.known(p_doc, array[change_hash]) <> '{}' or exists (select from automerge.queue q where q.doc = p_doc and q.hash = change_hash and q.tried_at is null) then
      return change_hash;
    end if;
    body := substring(p_chunk from at + 1);
    if length(body) = 0 or get_byte(body, 0) > 127 or length(body) < 1 + 32 * get_byte(body, 0) then
      perform automerge.refuse('AM005', 'the chunk ends within its dependencies', 'It was not made by Automerge.', jsonb_build_object('doc', p_doc));
    end if;
    deps := automerge.split_hashes(substring(body from 2 for 32 * get_byte(body, 0)));
    lacking := array(select h from unnest(deps) h where h <> all (automerge.known(p_doc, deps))
      and not exists (select from automerge.queue q where q.doc = p_doc and q.hash = h and q.tried_at is null));
    if lacking <> '{}' then
      perform automerge.refuse('AM003', format('changes that others depend on are missing in document %s: %s', p_doc, array_to_string(automerge.hex(lacking[1:5]), ', ')),
        'Append them first.', jsonb_build_object('doc', p_doc, 'missing', automerge.hex(lacking)));
    end if;
  elsif kind not in (0, 2) then
    perform automerge.refuse('AM008', format('chunks of kind %s are not supported', kind), 'Send changes or a save.', jsonb_build_object('doc', p_doc));
  end if;
  update automerge.appending set chunk = p_chunk, hash = change_hash where id = p_doc;
  if not found then
    perform automerge.refuse_unknown(p_doc);
  end if;
  return change_hash;
end $$;
comment on function automerge.append is 'Appends a chunk (a change, or a save) to a document, for a worker to validate and add. Returns the hash of a change; null where only the worker can tell, because the chunk is compressed. Appending again does nothing.';
