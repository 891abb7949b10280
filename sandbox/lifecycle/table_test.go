package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// object is an entry of the tables in these tests.
type object struct {
	id, name string
	age      int
	creation *Creation
}

func (o *object) Creation() *Creation { return o.creation }

func newObject(id, name string, age int) *object {
	return &object{id: id, name: name, age: age, creation: NewCreation()}
}

func newObjects(objects ...*object) *Table[string, *object] {
	t := NewTable("object", func(o *object) Entry[string] {
		return Entry[string]{ID: o.id, Name: o.name, Created: time.Unix(int64(-o.age), 0)}
	})
	for _, o := range objects {
		t.Add(o)
	}
	return t
}

func TestTableFinds(t *testing.T) {
	t.Parallel()
	table := newObjects(newObject("abc", "a", 1), newObject("abd", "b", 2), newObject("ab", "c", 3),
		newObject("xyz", "d", 4))
	for _, c := range []struct {
		id, want string
		is       func(error) bool
	}{
		{"abc", "abc", nil}, {"abd", "abd", nil}, {"x", "xyz", nil},
		{"ab", "ab", nil}, // the whole id of one, and the start of others
		{"a", "", errdefs.IsInvalidArgument}, {"", "", errdefs.IsInvalidArgument},
		{"q", "", errdefs.IsNotFound}, {"xyza", "", errdefs.IsNotFound},
	} {
		o, err := table.Find(c.id)
		switch {
		case c.is != nil && (o != nil || !c.is(err)):
			t.Errorf("Find(%q) = %v, %v, want an error of another kind", c.id, o, err)
		case c.is == nil && (err != nil || o.id != c.want):
			t.Errorf("Find(%q) = %v, %v, want %s", c.id, o, err, c.want)
		}
	}
}

func TestTableListsOldestFirst(t *testing.T) {
	t.Parallel()
	table := newObjects(newObject("b", "1", 5), newObject("young", "2", 0), newObject("a", "3", 5),
		newObject("old", "4", 9))
	ids := func(keep func(*object) bool) (ids []string) {
		for _, o := range table.List(keep) {
			ids = append(ids, o.id)
		}
		return ids
	}
	if got, want := ids(nil), []string{"old", "a", "b", "young"}; !slices.Equal(got, want) {
		t.Errorf("List = %v, want %v", got, want)
	}
	got := ids(func(o *object) bool { return o.age == 5 })
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("List = %v, want %v", got, want)
	}
}

func TestTableKeepsNamesUnique(t *testing.T) {
	t.Parallel()
	first, second := newObject("1", "name", 1), newObject("2", "name", 2)
	table := newObjects(first)
	if other, added := table.Add(second); added || other != first {
		t.Errorf("Add = %v, %v, want the first", other, added)
	}
	if _, err := table.Find("2"); !errdefs.IsNotFound(err) {
		t.Errorf("Find of a refused object = %v, want not found", err)
	}
	table.FreeName(second) // it has none
	if _, added := table.Add(second); added {
		t.Error("another object than its owner freed the name")
	}
	table.FreeName(first)
	if _, added := table.Add(second); !added {
		t.Error("Add = false after FreeName, want true")
	}
	if o, err := table.Find("1"); o != first {
		t.Errorf("Find of an object without its name = %v, %v, want it", o, err)
	}
	table.Remove(first) // must not free the name of the second
	if other, added := table.Add(newObject("3", "name", 3)); added || other != second {
		t.Errorf("Add = %v, %v, want the second", other, added)
	}
	table.Remove(second)
	if _, added := table.Add(newObject("3", "name", 3)); !added {
		t.Error("Add = false after Remove, want true")
	}
}

func TestTableAdopts(t *testing.T) {
	t.Parallel()
	first, second, third := newObject("1", "name", 1), newObject("2", "name", 2), newObject("3", "name", 3)
	table := newObjects()
	for _, c := range []struct {
		o              *object
		named, replace bool
		other, owner   *object
	}{
		{first, true, false, nil, first},
		{second, false, true, nil, first}, // it has no name
		{second, true, false, first, first},
		{third, true, true, first, third},
	} {
		if other, found := table.Adopt(c.o, c.named, c.replace); other != c.other || found != (c.other != nil) {
			t.Errorf("Adopt(%s, %v, %v) = %v, %v, want %v", c.o.id, c.named, c.replace, other, found, c.other)
		}
		if owner, _ := table.Add(newObject("probe", "name", 0)); owner != c.owner {
			t.Errorf("after Adopt(%s, %v, %v): the name is that of %v, want %v", c.o.id, c.named, c.replace, owner, c.owner)
		}
		if o, err := table.Find(c.o.id); o != c.o {
			t.Errorf("Find(%s) = %v, %v, want it", c.o.id, o, err)
		}
	}
}
