package image

import (
	"slices"
	"sync"
)

// holds remember which containers use which image, and keep use and removal of one image apart.
type imageRefs struct {
	mu sync.Mutex
	// byImage counts, per image and container, the file systems in use or being made.
	byImage map[string]map[string]int
	// removing are the images whose removal is under way, each with what is closed at its end.
	removing map[string]chan struct{}
}

func newImageRefs() *imageRefs {
	return &imageRefs{byImage: map[string]map[string]int{}, removing: map[string]chan struct{}{}}
}

// take records that container uses image; false when the image is being removed.
func (r *imageRefs) add(image, container string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removing[image] != nil {
		return false
	}
	if r.byImage[image] == nil {
		r.byImage[image] = map[string]int{}
	}
	r.byImage[image][container]++
	return true
}

// drop undoes one take.
func (r *imageRefs) remove(image, container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byImage[image][container]--; r.byImage[image][container] <= 0 {
		r.removeLocked(image, container)
	}
}

// release undoes every take of a container.
func (r *imageRefs) removeContainer(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for image := range r.byImage {
		r.removeLocked(image, container)
	}
}

func (r *imageRefs) removeLocked(image, container string) {
	delete(r.byImage[image], container)
	if len(r.byImage[image]) == 0 {
		delete(r.byImage, image)
	}
}

// users returns the containers that use an image, sorted.
func (r *imageRefs) users(image string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usersLocked(image)
}

func (r *imageRefs) usersLocked(image string) []string {
	var out []string
	for container := range r.byImage[image] {
		out = append(out, container)
	}
	slices.Sort(out)
	return out
}

// beginRemoval keeps an image from being used from now on, until endRemoval. It returns the containers that use it
// already, or what is closed at the end of another removal that is under way; then nothing has begun.
func (r *imageRefs) beginRemoval(image string) (users []string, other <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.removing[image]; other != nil {
		return nil, other
	}
	if users := r.usersLocked(image); len(users) > 0 {
		return users, nil
	}
	r.removing[image] = make(chan struct{})
	return nil, nil
}

func (r *imageRefs) endRemoval(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.removing[image])
	delete(r.removing, image)
}
