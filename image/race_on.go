//go:build race

package image

// raceDetector: its shadow memory exceeds every limit on memory.
const raceDetector = true
