package gnomon_test

import _ "pgregory.net/rapid" // its flags are set in TestMain
