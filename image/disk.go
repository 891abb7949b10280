package image

// Disk is the disk space of the stored images.
type Disk struct {
	// Layers is the size of all layers in bytes, each counted once.
	Layers uint64
	// Unused are the bytes of layers of no image, which failed pulls have left. They are removed after an hour.
	Unused uint64
	Images []ImageDisk
}

// ImageDisk is the disk space of one image, in bytes.
type ImageDisk struct {
	*Image
	// Bytes is the size of its layers, Unique that of the layers which no other image has.
	Bytes, Unique uint64
	// UsedBy is the number of containers that have a filesystem of the image.
	UsedBy int
}

// Disk returns the space of each image, in the order of their creation, from memory. A layer that was not measured yet
// counts with the size in its record.
func (s *Store) Disk() Disk {
	ix, known := s.index.Load(), *s.usage.known.Load()
	images := map[string]int{} // by layer
	for _, e := range ix.byID {
		for _, id := range e.layers {
			images[id]++
		}
	}
	d := Disk{Unused: s.usage.unused.Load()}
	counted := map[string]bool{}
	for _, img := range ix.images {
		e, one := ix.byID[img.ID], ImageDisk{Image: img, UsedBy: len(s.mounts.Users.Of(img.ID))}
		for i, id := range e.layers {
			size := e.sizes[i]
			if measured, ok := known[id]; ok {
				size = measured.Bytes
			}
			one.Bytes += size
			if images[id] == 1 {
				one.Unique += size
			}
			if !counted[id] {
				counted[id] = true
				d.Layers += size
			}
		}
		d.Images = append(d.Images, one)
	}
	return d
}
