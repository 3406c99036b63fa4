// Checks whether a history of a key-value store is linearizable (Herlihy and Wing, 1990), with Porcupine.
//
//	linearizability HISTORY
//
// HISTORY has one line of JSON for each request, as `e3 chaos --history` writes it. Exit code 0 if it is
// linearizable, 1 if it is not, 2 if it cannot be read or the check takes too long.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Longest check.
const timeout = 5 * time.Minute

type operation struct {
	Client   int     `json:"client"`
	Key      string  `json:"key"`
	Op       string  `json:"op"`
	Expected *string `json:"expected"`
	Value    *string `json:"value"`
	Call     int64   `json:"call"`
	Return   *int64  `json:"return"`
	Result   *string `json:"result"`
}

// The state of a key: its value, or none. Every value is written once, so it stands for a version.
type state struct {
	present bool
	value   string
}

// step gives the answer of a store in this state, and the state afterwards.
func step(s state, o operation) (string, state) {
	switch o.Op {
	case "get":
		return s.value, s
	case "set":
		return "STORED", state{true, *o.Value}
	case "delete":
		if !s.present {
			return "NOT_FOUND", s
		}
		return "DELETED", state{}
	case "cas":
		switch {
		case !s.present:
			return "NOT_FOUND", s
		case s.value != *o.Expected:
			return "EXISTS", s
		}
		return "STORED", state{true, *o.Value}
	}
	panic("an operation that was not checked: " + o.Op)
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(s, input, output interface{}) (bool, interface{}) {
		o := input.(operation)
		answer, next := step(s.(state), o)
		if o.Return == nil {
			return true, next
		}
		result := ""
		if o.Result != nil {
			result = *o.Result
		}
		return answer == result, next
	},
}

// check says whether the operation has what its kind needs.
func (o operation) check() error {
	switch o.Op {
	case "get", "delete":
		return nil
	case "set":
		if o.Value == nil {
			return fmt.Errorf("set without value")
		}
		return nil
	case "cas":
		if o.Value == nil || o.Expected == nil {
			return fmt.Errorf("cas without value or expected")
		}
		return nil
	}
	return fmt.Errorf("unknown op %q", o.Op)
}

func read(path string) (map[string][]porcupine.Operation, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	byKey := map[string][]porcupine.Operation{}
	count := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		count++
		var o operation
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, count, err)
		}
		if err := o.check(); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, count, err)
		}
		// without an answer, it may take effect at any later time, or never
		end := int64(math.MaxInt64)
		if o.Return != nil {
			end = *o.Return
		}
		byKey[o.Key] = append(byKey[o.Key], porcupine.Operation{
			ClientId: o.Client, Input: o, Call: o.Call, Return: end,
		})
	}
	return byKey, count, lines.Err()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: linearizability HISTORY")
		os.Exit(2)
	}
	byKey, count, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	deadline := time.Now().Add(timeout)
	wrong := 0
	for _, key := range keys {
		left := time.Until(deadline)
		if left <= 0 {
			left = time.Millisecond // 0 would stand for no bound
		}
		switch porcupine.CheckOperationsTimeout(model, byKey[key], left) {
		case porcupine.Illegal:
			wrong++
			fmt.Printf("key %s: %d operations are not linearizable\n", key, len(byKey[key]))
		case porcupine.Unknown:
			fmt.Fprintf(os.Stderr, "key %s: the check of %d operations took too long\n", key, len(byKey[key]))
			os.Exit(2)
		}
	}
	if wrong > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d operations on %d keys are linearizable\n", count, len(keys))
}
