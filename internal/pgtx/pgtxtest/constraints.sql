-- Violates a constraint that is initially immediate and one that is initially
-- deferred, and raises which of them complained at once.
do $$
declare
    immediate text := 'deferred';
    deferred text := 'deferred';
begin
    create temporary table constraint_modes (
        i int unique deferrable initially immediate,
        d int unique deferrable initially deferred
    );
    begin
        insert into pg_temp.constraint_modes (i) values (1), (1);
    exception when unique_violation then
        immediate := 'immediate';
    end;
    begin
        insert into pg_temp.constraint_modes (d) values (1), (1);
    exception when unique_violation then
        deferred := 'immediate';
    end;
    raise exception 'constraint modes: initially immediate ones are %, initially deferred ones are %', immediate, deferred;
end $$
