//go:build race

package child

// raceDetector: its shadow memory exceeds every limit on memory.
const raceDetector = true
