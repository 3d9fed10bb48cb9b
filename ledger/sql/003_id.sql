-- Identities are UUIDs of version 7, stored in 16 bytes. People see them as TypeIDs (github.com/jetify-com/typeid): a prefix
-- that says what it is, and the UUID in 26 letters and digits of Crockford's base 32.

create function ledger.new_id() returns uuid
language sql volatile set search_path = pg_catalog, pg_temp
return encode(set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid;
comment on function ledger.new_id is 'A fresh UUID of version 7: its first 48 bits are the time in milliseconds.';

create function ledger.id_text(p_kind text, p_id uuid) returns text
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp
return p_kind || '_' || (
  select string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', substring(b.bits from 1 + 5 * i for 5)::int + 1, 1), '' order by i)
    from (select B'00' || ('x' || replace(p_id::text, '-', ''))::bit(128) as bits) b, generate_series(0, 25) i);
comment on function ledger.id_text is 'Text form of an identity; the kinds are acct, xfer, jrnl and hold.';

create function ledger.id(p_kind text, p_text text) returns uuid
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  digits text := substring(p_text from '^' || p_kind || '_([0-7][0-9a-hjkmnp-tv-z]{25})$');
  bits bit varying;
begin
  if digits is null then
    if p_text !~ '^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$' then
      perform ledger.refuse(ledger.refusal('LG016', format('%L is not the id of a %s', p_text, p_kind),
        jsonb_build_object('id', p_text), format('Ids look like %s or are plain UUIDs.', ledger.id_text(p_kind, '00000000-0000-7000-8000-000000000000'))));
    end if;
    return p_text::uuid;
  end if;
  select string_agg((position(substr(digits, i, 1) in '0123456789abcdefghjkmnpqrstvwxyz') - 1)::bit(5)::text, '' order by i)::bit varying
    into bits from generate_series(1, 26) i;
  return (select string_agg(to_hex(substring(bits from 3 + 4 * i for 4)::int), '' order by i) from generate_series(0, 31) i)::uuid;
end $$;
comment on function ledger.id is 'Reads an identity of one kind: its text form with the prefix, or a plain UUID.';
