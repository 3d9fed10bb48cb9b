-- What the server's texts depend on: without these, names would be qualified or
-- not, and constants written, as the caller happens to like it.
set local search_path = pg_catalog, pg_temp;
set local datestyle = iso;
set local intervalstyle = postgres;
set local extra_float_digits = 1;
set local quote_all_identifiers = off
