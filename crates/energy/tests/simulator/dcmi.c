/* A module of OpenIPMI's ipmi_sim: answers Get Power Reading of DCMI 1.5 (6.6.1) with 220 W. */
#include <string.h>

typedef void handler(void *mc, void *message, unsigned char *answer, unsigned int *length, void *data);
extern void ipmi_emu_register_group_extension_handler(unsigned char group, handler *handle, void *data);

static const unsigned char READING[] = {
    0x00,                   /* completion code */
    0xdc,                   /* group: DCMI */
    220, 0, 12, 0, 154, 1, 217, 0, /* watts now, least, most, average */
    0, 0, 0, 91,            /* time */
    0x88, 0x13, 0, 0,       /* period: 5,000 ms */
    0x40,                   /* measuring */
};

static void answer_reading(void *mc, void *message, unsigned char *answer, unsigned int *length, void *data)
{
    (void)mc;
    (void)message;
    (void)data;
    memcpy(answer, READING, sizeof READING);
    *length = sizeof READING;
}

int ipmi_sim_module_print_version(void *sys, char *options)
{
    (void)sys;
    (void)options;
    return 0;
}

int ipmi_sim_module_init(void *sys, char *options)
{
    (void)sys;
    (void)options;
    ipmi_emu_register_group_extension_handler(0xdc, answer_reading, 0);
    return 0;
}
