//go:build !race

package image

const raceDetector = false
