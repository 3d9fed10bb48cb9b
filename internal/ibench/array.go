package ibench

import "encoding/binary"

// array is a one-dimensional array in PostgreSQL's binary format: dimensions, whether there are nulls, the elements' type, then of each
// dimension its length and lower bound, then each element behind its length.
type array []byte

const arrayHeader = 20

func newArray(elementType uint32) array {
	a := make(array, arrayHeader)
	binary.BigEndian.PutUint32(a[0:], 1)
	binary.BigEndian.PutUint32(a[8:], elementType)
	binary.BigEndian.PutUint32(a[16:], 1)
	return a
}

// reset empties the array, for that many elements.
func (a *array) reset(length int) {
	*a = (*a)[:arrayHeader]
	binary.BigEndian.PutUint32((*a)[12:], uint32(length))
}

func (a *array) addInt(value int32) {
	*a = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(*a, 4), uint32(value))
}

func (a *array) addText(value []byte) {
	*a = append(binary.BigEndian.AppendUint32(*a, uint32(len(value))), value...)
}
