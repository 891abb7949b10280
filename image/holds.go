package image

import (
	"slices"
	"sync"
)

// holds remember which containers use which image, and keep use and removal of one image apart.
type holds struct {
	mu sync.Mutex
	// byImage counts, per image and container, the file systems in use or being made.
	byImage map[string]map[string]int
	// removing are the images whose removal is under way, each with what is closed at its end.
	removing map[string]chan struct{}
}

func newHolds() *holds {
	return &holds{byImage: map[string]map[string]int{}, removing: map[string]chan struct{}{}}
}

// take records that container uses image; false when the image is being removed.
func (h *holds) take(image, container string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removing[image] != nil {
		return false
	}
	if h.byImage[image] == nil {
		h.byImage[image] = map[string]int{}
	}
	h.byImage[image][container]++
	return true
}

// drop undoes one take.
func (h *holds) drop(image, container string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byImage[image][container]--; h.byImage[image][container] <= 0 {
		h.dropLocked(image, container)
	}
}

// release undoes every take of a container.
func (h *holds) release(container string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for image := range h.byImage {
		h.dropLocked(image, container)
	}
}

func (h *holds) dropLocked(image, container string) {
	delete(h.byImage[image], container)
	if len(h.byImage[image]) == 0 {
		delete(h.byImage, image)
	}
}

// users returns the containers that use an image, sorted.
func (h *holds) users(image string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usersLocked(image)
}

func (h *holds) usersLocked(image string) []string {
	var out []string
	for container := range h.byImage[image] {
		out = append(out, container)
	}
	slices.Sort(out)
	return out
}

// beginRemoval keeps an image from being used from now on, until endRemoval. It returns the containers that use it
// already, or what is closed at the end of another removal that is under way; then nothing has begun.
func (h *holds) beginRemoval(image string) (users []string, other <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.removing[image]; other != nil {
		return nil, other
	}
	if users := h.usersLocked(image); len(users) > 0 {
		return users, nil
	}
	h.removing[image] = make(chan struct{})
	return nil, nil
}

func (h *holds) endRemoval(image string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.removing[image])
	delete(h.removing, image)
}
