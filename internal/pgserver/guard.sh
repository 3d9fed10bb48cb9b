# The guard: a shell between the Go process and the program that it starts.
#
#   sh -c guard.sh guard FOLDER LOG SIGNAL PROGRAM ARGUMENT...
#
# It reads words from stdin, one a line, and answers each with a line. When stdin ends, because the Go process
# closed it or died in any way, the guard sends SIGNAL to the program, waits for it and removes FOLDER.
#
#   start   starts the program; answers its process id
#   status  answers "running" or "ended"
#   wait    waits until the program and everything that it started are gone; answers "gone"
folder=$1 log=$2 signal=$3
shift 3
program= reader=

# The output goes through a pipe that every descendant of the program holds open: its reader ends exactly when the
# last of them is gone, orphans included, which no process id of ours would tell.
begin() {
	mkfifo -m 600 "$folder/output"
	exec 4<>"$folder/output" # opening either end alone would wait for the other
	exec 5<"$folder/output" 6>"$folder/output" 4>&-
	rm "$folder/output"
	cat <&5 >>"$log" 5<&- 6>&- &
	reader=$!
	"$@" </dev/null >&6 2>&1 5<&- 6>&- &
	program=$!
	exec 5<&- 6>&-
}

running() {
	jobs >/dev/null # reaps what has ended
	[ -n "$program" ] && kill -0 "$program"
}

gone() {
	[ -n "$program" ] || return 0
	wait "$program"
	wait "$reader"
	program=
}

while read -r word; do
	case $word in
	start)
		gone
		begin "$@"
		echo "$program"
		;;
	status)
		if running; then echo running; else echo ended; fi
		;;
	wait)
		gone
		echo gone
		;;
	esac
done

# Again and again, for a program that has just been started may ignore it still.
while running; do
	kill -s "$signal" "$program"
	sleep 0.1
done
gone
cd / && rm -rf "$folder"
