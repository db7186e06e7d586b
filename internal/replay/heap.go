package replay

// ordered is what a heap can hold.
type ordered[T any] interface{ before(T) bool }

// heap is a binary heap: the first element is on top.
type heap[T ordered[T]] []T

func (h *heap[T]) push(x T) {
	s := append(*h, x)
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
	*h = s
}

func (h *heap[T]) pop() T {
	s := *h
	top, n := s[0], len(s)-1
	s[0] = s[n]
	var none T
	s[n] = none
	s = s[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s[c+1].before(s[c]) {
			c++
		}
		if !s[c].before(s[i]) {
			break
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
	*h = s
	return top
}
