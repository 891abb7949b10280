package rootfs

import (
	"slices"
	"sync"
)

// Users records which containers use which image, and keeps an image from being used while it is removed.
type Users struct {
	mu sync.Mutex
	// byImage counts the filesystems in use or being made, per image and container.
	byImage map[string]map[string]int
	// removing maps each image that is being removed to a channel that is closed at the end of the removal.
	removing map[string]chan struct{}
}

func newUsers() *Users {
	return &Users{byImage: map[string]map[string]int{}, removing: map[string]chan struct{}{}}
}

// add records that container uses image; false if the image is being removed.
func (r *Users) add(image, container string) bool {
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

// remove undoes one add.
func (r *Users) remove(image, container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byImage[image][container]--; r.byImage[image][container] <= 0 {
		r.removeLocked(image, container)
	}
}

// removeContainer undoes every add of a container.
func (r *Users) removeContainer(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for image := range r.byImage {
		r.removeLocked(image, container)
	}
}

func (r *Users) removeLocked(image, container string) {
	delete(r.byImage[image], container)
	if len(r.byImage[image]) == 0 {
		delete(r.byImage, image)
	}
}

// Of returns the containers that use an image, sorted.
func (r *Users) Of(image string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usersLocked(image)
}

func (r *Users) usersLocked(image string) []string {
	var out []string
	for container := range r.byImage[image] {
		out = append(out, container)
	}
	slices.Sort(out)
	return out
}

// BeginRemoval prevents further use of an image until EndRemoval. It fails with the containers that use the image, or
// with a channel that is closed at the end of another removal in progress.
func (r *Users) BeginRemoval(image string) (users []string, other <-chan struct{}) {
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

// EndRemoval ends what BeginRemoval began.
func (r *Users) EndRemoval(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.removing[image])
	delete(r.removing, image)
}
