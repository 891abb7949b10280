package tomlconfig

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

var durationType = reflect.TypeFor[time.Duration]()

// convert sets target, which is not a table, to a value that the TOML parser returned. The error names the wanted type.
func convert(target reflect.Value, v any) error {
	if target.Type() == durationType {
		return convertDuration(target, v)
	}
	switch target.Kind() {
	case reflect.Slice:
		return convertSlice(target, v)
	case reflect.String:
		if s, ok := v.(string); ok {
			target.SetString(s)
			return nil
		}
		return fmt.Errorf("want a string in quotes, not %s", describe(v))
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			target.SetBool(b)
			return nil
		}
		return fmt.Errorf("want true or false, not %s", describe(v))
	}
	return convertNumber(target, v)
}

func convertNumber(target reflect.Value, v any) error {
	n, whole := v.(int64)
	if s, ok := v.(string); ok && target.Kind() == reflect.Int64 { // bytes
		q, err := resource.ParseQuantity(strings.TrimSuffix(s, "B"))
		if n, whole = q.Value(), true; err != nil || n < 0 || n == math.MaxInt64 || q.CmpInt64(n) != 0 { // the cap
			return fmt.Errorf(`want a number of bytes or a size such as "512MiB", not %s`, describe(v))
		}
	}
	switch {
	case target.CanFloat():
		f, ok := v.(float64)
		if whole {
			f, ok = float64(n), true
		}
		if !ok {
			return fmt.Errorf("want a number, not %s", describe(v))
		}
		target.SetFloat(f)
		return nil
	case !whole:
		return fmt.Errorf("want a whole number, not %s", describe(v))
	case target.CanInt() && !target.OverflowInt(n):
		target.SetInt(n)
		return nil
	case target.CanUint() && n >= 0 && !target.OverflowUint(uint64(n)):
		target.SetUint(uint64(n))
		return nil
	}
	return fmt.Errorf("%d is out of range", n)
}

func convertDuration(target reflect.Value, v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf(`want a duration such as "90s" or "2m", not %s`, describe(v))
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf(`want a duration such as "90s" or "2m", not %q`, s)
	}
	if d < 0 {
		return fmt.Errorf("%q is negative", s)
	}
	target.SetInt(int64(d))
	return nil
}

// convertSlice replaces the slice: arrays are not merged.
func convertSlice(target reflect.Value, v any) error {
	in, ok := v.([]any)
	if !ok {
		return fmt.Errorf(`want an array such as ["a", "b"], not %s`, describe(v))
	}
	out := reflect.MakeSlice(target.Type(), len(in), len(in))
	for i, e := range in {
		if err := convert(out.Index(i), e); err != nil {
			return fmt.Errorf("element %d: %w", i+1, err)
		}
	}
	target.Set(out)
	return nil
}

// describe returns a TOML value for an error message.
func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool, int64, float64:
		return fmt.Sprint(v)
	}
	return "a date or time"
}
